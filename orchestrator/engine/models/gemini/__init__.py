"""Gemini's generateContent."""
