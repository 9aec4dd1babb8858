"""Draws small mutations of modules and plays the tests on each: which mistakes would no test notice?"""
