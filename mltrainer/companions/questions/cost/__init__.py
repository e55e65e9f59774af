"""What will training, search and answers cost, where, and which offer is the cheapest in time?"""
